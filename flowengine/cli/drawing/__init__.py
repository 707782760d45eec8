"""Pictures of a compiled flow: as Mermaid, as DOT for Graphviz, as SVG with a layout of our own."""
