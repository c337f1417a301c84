// A library with precompiled headers must have a source.
