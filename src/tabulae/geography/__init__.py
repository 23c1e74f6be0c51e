"""Geography: spines of areas within areas, and the areas that cut across them."""

from .spine import Spine

__all__ = ["Spine"]
