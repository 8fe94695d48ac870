#!/usr/bin/env bash
# Builds every fuzz target into $OUT with the compiler, flags and engine of ClusterFuzzLite or
# OSS-Fuzz (https://google.github.io/oss-fuzz/getting-started/new-project-guide/), and its corpus.
# What runs them has none of the libraries that this finds: CMakeLists.txt links those in.
set -euo pipefail

targets=(caches engine gguf tokenizer plugin)
cmake -S . -B "$WORK/lockstep" -G Ninja -DLOCKSTEP_FUZZERS="$LIB_FUZZING_ENGINE" \
  -DLOCKSTEP_CUDA=OFF -DCMAKE_BUILD_TYPE=None \
  -DCMAKE_C_COMPILER="$CC" -DCMAKE_CXX_COMPILER="$CXX" \
  -DCMAKE_C_FLAGS="$CFLAGS" -DCMAKE_CXX_FLAGS="$CXXFLAGS"
cmake --build "$WORK/lockstep" --target "${targets[@]/#/fuzz_}"
for target in "${targets[@]}"; do
  cp "$WORK/lockstep/properties/fuzz_$target" "$OUT/"
  (cd "properties/fuzz/corpus/$target" && zip -q -r "$OUT/fuzz_${target}_seed_corpus.zip" .)
done
