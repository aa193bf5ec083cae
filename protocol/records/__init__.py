"""Record batches, magic 2: the format of producers, logs and consumers.

`batch` reads and patches the 61-byte header without the body; `builder` and `reader` make and parse bodies; `control`
has the broker's own batches (transaction markers, leader changes); `compression` the five codecs; `compiled` loads the
compiled third-party code they use.
"""
