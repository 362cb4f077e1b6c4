# Text to tokens, and tokens to batches.
trainer_library(trainer_data
  SOURCES batch_order.cpp blend.cpp data_file.cpp dataset.cpp documents.cpp feed.cpp prefetch.cpp sentencepiece.cpp step_sizes.cpp
          token_manifest.cpp tokenizer.cpp tokens.cpp utf8.cpp
  LIBS trainer_io trainer_engine trainer_spec nlohmann_json::nlohmann_json PkgConfig::SENTENCEPIECE Threads::Threads)
