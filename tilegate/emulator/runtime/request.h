// What is to be run, read from the text that the Python side wrote: one "word value …" a line.
#pragma once
#include <string>

#include "machine.h"
#include "schedule.h"

struct Request {
  std::string library;
  double seconds;
  uint64_t memory_bytes;
  Schedule schedule;
  int processes;  // that share the workgroups
};

// Fills in what of machine.launch does not come from the library; maps the buffers, each between guard pages.
Request read_request(int request, int memory);
