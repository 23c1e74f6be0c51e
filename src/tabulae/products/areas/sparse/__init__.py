"""Areas of very many cells: a descent that holds, asks and divides only what the area above has."""
