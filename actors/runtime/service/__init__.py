"""The CRI server: gRPC services, sessions and the engine behind them."""
