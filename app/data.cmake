# `trainer data`, apart from the program so that tests can call it.
trainer_library(trainer_data_commands SOURCES data.cpp LIBS trainer_data CLI11::CLI11 nlohmann_json::nlohmann_json)
trainer_short_build(trainer_data_commands)
