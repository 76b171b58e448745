"""Replay: which unrolls stay (reservoir), as which bytes (codec), where (store), and how they are mixed in (mixing)."""
