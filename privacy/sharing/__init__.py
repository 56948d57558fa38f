"""Computing on shares: the n x n Gram matrix and weighted sums of updates that nobody sees. Pure maths on arrays."""
