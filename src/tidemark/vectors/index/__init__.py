"""The vector index without tables or jobs: internal ids, centroids, posting lists, and the search in them (V1-V3).

    internal_ids  64 bits for (shard, epoch, ordinal)         metrics      the three distances
    training      centroids by a seeded k-means               state        the parts of an index
    fold          changes without training, when to rebuild   search       `nearest`, and brute force beside it
    recall        how much is found, how many probes that     tables       the same as Arrow tables, and the pointer row
                  takes                                       invariants   what is wrong with an index, if anything
    kernels       the loops that compute all of it            blocks       vectors as these loops read them

Belongs here: pure functions of arrays and Arrow tables. Neither dagster nor pyspark may be imported here.
"""
