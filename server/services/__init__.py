"""The gRPC services: decode, call, encode, and nothing else."""
