"""The lab: measure with torch, and on this machine, what the formulas predict. The only place that imports torch."""
