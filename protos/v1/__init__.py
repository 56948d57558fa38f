"""Version 1 of the wire schemas; the ``*_pb2`` modules are generated (``make protos``)."""
