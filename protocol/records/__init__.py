"""Record batches, magic 2: the bytes that producers send, logs keep and consumers fetch.

`batch` reads and patches the 61-byte header and never opens the body; `builder` and `reader` make and open bodies;
`control` holds the broker's own batches (transaction markers, leader changes); `compression` the five codecs;
`compiled` loads the third-party machine code behind all of them. Not here: files, offsets of a log, who may append
what.
"""
