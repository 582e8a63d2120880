"""The tests: one package for each package under test, and the helpers they share."""

import os

# As the agent has it for its own processes, some of which fork: gRPC would bring its threads to life in each child.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
