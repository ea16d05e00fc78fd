"""memtier: where the bytes of an AI system live, and what it costs to keep them there.

The formulas of the course "Where AI Data Lives". They need nothing but Python's standard library.
"""

__version__ = "0.1.0"
