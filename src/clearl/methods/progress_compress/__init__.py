"""Progress & Compress (Schwarz 2018): the method, and the network of two columns that it trains."""

from clearl.methods.progress_compress.method import ProgressCompress

__all__ = ["ProgressCompress"]
