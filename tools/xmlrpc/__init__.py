"""XML-RPC, the second protocol for clients of the first paper: Table 1 by any XML-RPC library."""
