"""The wire: protobuf schemas, their generated modules, and what both ends need to speak them."""
