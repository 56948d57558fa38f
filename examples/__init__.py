"""Complete federations to read, run and copy from."""
