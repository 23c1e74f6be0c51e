"""HDMM: the best strategy without structure, as a product, as a union of products, of marginals."""
