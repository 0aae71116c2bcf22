"""Benchmarks: each prints a table and claims, writes build/bench/<name>.json, and exits 1 when a claim is missed."""
