"""The CRI server: gRPC, RuntimeService and ImageService."""
