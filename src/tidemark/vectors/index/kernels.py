"""The loops of the vector index: distances in one fixed order, the least k of them, and steps of a k-means.

Belongs here: compiled loops and nothing else. They are called by `blocks.py`, `search.py` and `training.py`.

The distance of a pair is a sum over its dimensions, first to last, in 64 bits. Vectors of a list are stored dimension
by dimension (all first values, then all second ones), so that the processor takes several *vectors* at a time and never
several dimensions of one. The compiler may therefore not change a bit of it: a distance is the same in any list, batch
or order, and on any processor. That makes a search of all lists equal to brute force, exactly (V3).
"""

import math

import numpy as np
import numpy.typing as npt

from tidemark.arrays.compiled import compiled, inlined

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]
FloatTable = np.ndarray[tuple[int, int], np.dtype[np.float64]]
SingleTable = np.ndarray[tuple[int, int], np.dtype[np.float32]]
NumberTable = np.ndarray[tuple[int, int], np.dtype[np.int64]]

# This many distances are computed at a time: they stay in the first cache beside their inputs.
CHUNK = 512
SQUARED, L2, DOT, COSINE = range(4)


@inlined
def _add_squares(values: Singles, length: int, begin: int, count: int, query: Floats, sums: Floats) -> None:
    """Squared distances of `count` vectors of a list of `length`, from the one at `begin` on.

    Each dimension is a slice of its own: with places counted from one start, the compiler takes one vector at a time.
    """
    for place in range(count):
        sums[place] = 0.0
    dimension = 0
    while dimension + 4 <= len(query):  # four at a time: the sums are fetched and put back a quarter as often
        first, second, third, fourth = (
            query[dimension],
            query[dimension + 1],
            query[dimension + 2],
            query[dimension + 3],
        )
        at = dimension * length + begin
        firsts, seconds = values[at : at + count], values[at + length : at + length + count]
        at += 2 * length
        thirds, fourths = values[at : at + count], values[at + length : at + length + count]
        for place in range(count):
            one, two = firsts[place] - first, seconds[place] - second
            three, four = thirds[place] - third, fourths[place] - fourth
            sums[place] = (((sums[place] + one * one) + two * two) + three * three) + four * four
        dimension += 4
    while dimension < len(query):
        first, at = query[dimension], dimension * length + begin
        rows = values[at : at + count]
        for place in range(count):
            one = rows[place] - first
            sums[place] += one * one
        dimension += 1


@inlined
def _add_products(values: Singles, length: int, begin: int, count: int, query: Floats, sums: Floats) -> None:
    """The same for products."""
    for place in range(count):
        sums[place] = 0.0
    dimension = 0
    while dimension + 4 <= len(query):
        first, second, third, fourth = (
            query[dimension],
            query[dimension + 1],
            query[dimension + 2],
            query[dimension + 3],
        )
        at = dimension * length + begin
        firsts, seconds = values[at : at + count], values[at + length : at + length + count]
        at += 2 * length
        thirds, fourths = values[at : at + count], values[at + length : at + length + count]
        for place in range(count):
            one, two = firsts[place] * first, seconds[place] * second
            three, four = thirds[place] * third, fourths[place] * fourth
            sums[place] = (((sums[place] + one) + two) + three) + four
        dimension += 4
    while dimension < len(query):
        first, at = query[dimension], dimension * length + begin
        rows = values[at : at + count]
        for place in range(count):
            sums[place] += rows[place] * first
        dimension += 1


@inlined
def _measure(
    values: Singles,
    length: int,
    begin: int,
    count: int,
    squares: Floats,
    query: Floats,
    square: float,
    metric: int,
    found: Floats,
) -> None:
    """Distances of some vectors of a list. Squares are sums of products of a vector with itself."""
    if metric <= L2:
        _add_squares(values, length, begin, count, query, found)
        if metric == L2:
            for place in range(count):
                found[place] = math.sqrt(found[place])
        return
    _add_products(values, length, begin, count, query, found)
    if metric == DOT:
        for place in range(count):
            found[place] = -found[place]
        return
    for place in range(count):
        # The root of the product, not the product of roots: so that the cosine of equal vectors is exactly 1.
        both = math.sqrt(square * squares[begin + place])
        found[place] = 1.0 - found[place] / both if both > 0.0 else 1.0


@inlined
def _is_after(distance: float, rank: int, other: float, other_rank: int) -> bool:
    return distance > other or (distance == other and rank > other_rank)


@inlined
def _sink(distances: Floats, ranks: Numbers, size: int) -> None:
    """Let the first entry of a heap sink to where nothing below it comes after it."""
    place = 0
    distance, rank = distances[place], ranks[place]
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and _is_after(distances[child + 1], ranks[child + 1], distances[child], ranks[child]):
            child += 1
        if not _is_after(distances[child], ranks[child], distance, rank):
            break
        distances[place], ranks[place] = distances[child], ranks[child]
        place = child
    distances[place], ranks[place] = distance, rank


@compiled
def scan(
    values: Singles,
    offsets: Numbers,
    squares: Floats,
    ranks: Numbers,
    lists: Numbers,
    asking: Numbers,
    queries: FloatTable,
    query_squares: Floats,
    metric: int,
    scratch: Floats,
    least: FloatTable,
    least_ranks: NumberTable,
) -> None:
    """For each pair of a list and a query that asks it: let the list's vectors into the query's heap of the least.

    Heaps are full from the start, of entries that come after everything. Distance, then rank, is a total order: what
    is left in a heap does not depend on the order of pairs.
    """
    dimension, last = queries.shape[1], least.shape[1]
    for pair in range(len(lists)):
        row = asking[pair]
        start, end = offsets[lists[pair]], offsets[lists[pair] + 1]
        length = end - start
        block, query = values[start * dimension : end * dimension], queries[row]
        heap, heap_ranks = least[row], least_ranks[row]
        for begin in range(0, length, CHUNK):
            count = min(CHUNK, length - begin)
            _measure(block, length, begin, count, squares[start:end], query, query_squares[row], metric, scratch)
            for place in range(count):
                if scratch[place] <= heap[0]:
                    rank = ranks[start + begin + place]
                    if _is_after(heap[0], heap_ranks[0], scratch[place], rank):
                        heap[0], heap_ranks[0] = scratch[place], rank
                        _sink(heap, heap_ranks, last)


@compiled
def sort_heaps(least: FloatTable, least_ranks: NumberTable) -> None:
    """Each heap in order, the least first."""
    for row in range(least.shape[0]):
        heap, ranks = least[row], least_ranks[row]
        for size in range(least.shape[1] - 1, 0, -1):
            heap[0], heap[size] = heap[size], heap[0]
            ranks[0], ranks[size] = ranks[size], ranks[0]
            _sink(heap, ranks, size)


@compiled
def lay_out(rows: SingleTable, order: Numbers, offsets: Numbers, values: Singles, squares: Floats) -> None:
    """Rows, list by list in this order, dimension by dimension within a list; and each one's product with itself."""
    dimension = rows.shape[1]
    for each in range(len(offsets) - 1):
        start, length = offsets[each], offsets[each + 1] - offsets[each]
        for place in range(length):
            total, row = 0.0, rows[order[start + place]]
            for number in range(dimension):
                values[start * dimension + number * length + place] = row[number]
                total += np.float64(row[number]) * np.float64(row[number])
            squares[start + place] = total


@compiled
def square_up(rows: FloatTable, squares: Floats) -> None:
    """The product of each row with itself, added up as everywhere."""
    for row in range(rows.shape[0]):
        total = 0.0
        for number in range(rows.shape[1]):
            total += rows[row, number] * rows[row, number]
        squares[row] = total


@compiled
def assign(
    rows: SingleTable, centroids: Singles, number: int, query: Floats, scratch: Floats, nearest: Numbers, far: Floats
) -> None:
    """The nearest of `number` centroids for each row, the smaller one of equals (V2), and its squared distance."""
    for row in range(rows.shape[0]):
        for dimension in range(rows.shape[1]):
            query[dimension] = rows[row, dimension]
        best, chosen = np.inf, 0
        for begin in range(0, number, CHUNK):
            count = min(CHUNK, number - begin)
            _add_squares(centroids, number, begin, count, query, scratch)
            for place in range(count):
                if scratch[place] < best:
                    best, chosen = scratch[place], begin + place
        nearest[row], far[row] = chosen, best


@inlined
def _drawn(weights: Floats, left: float) -> int:
    """The place at which all weights up to it exceed what was drawn; it is never one without weight."""
    drawn = -1
    for place in range(len(weights)):
        if weights[place] > 0.0:
            drawn = place  # the last one that could be drawn, if what is left never falls below 0
            left -= weights[place]
            if left < 0.0:
                break
    return drawn


@compiled
def choose_far_apart(
    values: Singles, rows: SingleTable, draws: Floats, query: Floats, scratch: Floats, far: Floats, chosen: Numbers
) -> int:
    """The first centroids (k-means++): each next one a row, drawn by its squared distance from those chosen before.

    `far` is infinite at first. Gives how many were chosen: no more than there are different rows.
    """
    length = rows.shape[0]
    row = min(int(draws[0] * length), length - 1)
    for number in range(len(draws)):
        if number > 0:
            total = 0.0
            for place in range(length):
                total += far[place]
            if total == 0.0:
                return number
            row = _drawn(far, draws[number] * total)
        chosen[number] = row
        for dimension in range(rows.shape[1]):
            query[dimension] = rows[row, dimension]
        for begin in range(0, length, CHUNK):
            count = min(CHUNK, length - begin)
            _add_squares(values, length, begin, count, query, scratch)
            for place in range(count):
                far[begin + place] = min(far[begin + place], scratch[place])
    return len(draws)


@compiled
def add_up(rows: SingleTable, nearest: Numbers, sums: FloatTable, members: Numbers) -> None:
    """Sums and numbers of the rows of each centroid, added in the order of rows."""
    for row in range(rows.shape[0]):
        centroid = nearest[row]
        members[centroid] += 1
        for dimension in range(rows.shape[1]):
            sums[centroid, dimension] += rows[row, dimension]
