"""A federation on one machine: data, partition, models, engine, federation."""
