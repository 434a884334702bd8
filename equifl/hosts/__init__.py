"""What Flower and NVFlare share: reading what clients send, their signals, and the folder of a live federation."""
