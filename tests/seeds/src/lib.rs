//! No code: the tests replay the inputs of the fuzz targets (fuzz/README.md).
