"""Plain chains of layers (convolution, ReLU, max-pooling, linear) on a CPU, by loops that numba compiles.

**Tile.** `SIMD_WIDTH` = 16 samples go through the network together, as one tile. Two tiles (`TILES`) are loaded at a
time, so that linear layers read each weight once for both. Where examples run out, a slot of a tile repeats the
tile's first example and counts for nothing.

**Memory.** The sample is the innermost index: number `i` of a layer is the 16 floats from `16 * i` on, one a sample.
So one SIMD instruction does the same for all samples of a tile, and no layer is too narrow for it. A layer's images
lie plane by plane, with the border of zeros that the next convolution wants. All arrays of a thread are its
`Workspace`.

**Stage.** A network is a plan: an array of `STAGE` records, first the input, then a record a layer (a ReLU is a flag
of the layer before it). A record says where its inputs, outputs and weights are, how many there are of each, and
which tables of offsets lead to them. The compiled code knows records and tables, never a network, so it is compiled
once for all networks. `network_plan` makes them; `memory_layout` says what they hold.

**Passes.** `kernels.forward` takes each tile through convolutions and pooling, then all tiles together through the
linear layers, which come last. `kernels.backward` goes through the plan in reverse and adds to the gradient of the
weights. `client_work` makes local SGD, gradients, losses and predictions of the two; `engine` gives each client to a
thread. A client's result depends neither on the other clients nor on the number of threads.

**LLVM IR.** Plain loops run at a fifth of the speed: LLVM vectorises them but keeps sums in memory. So the loops that
matter (`simd_products`, `simd_loops`) are written as LLVM IR, by the small vocabulary in `llvm`, with as many sums as
the machine has registers for. numba puts them into the functions that call them.

**Cache.** `compile_cache` keeps the compiled entry point on the disk, under a name with a digest of this package's
source.
"""
