"""Pictures of a compiled flow: as Mermaid, as DOT for Graphviz, as SVG with its own layout."""
