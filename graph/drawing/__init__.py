"""Graphs as pictures: folded, laid out, written as SVG and HTML. Start reading at ``view.py``."""

from plait.graph.drawing.view import View, graph_view

__all__ = ["View", "graph_view"]
