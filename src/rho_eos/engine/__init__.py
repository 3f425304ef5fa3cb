"""Batched decoding of sequences whose lengths differ and change. Start reading at engine.py."""
