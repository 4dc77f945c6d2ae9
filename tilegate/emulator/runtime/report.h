// The one message to the process that started this one: JSON, written to a pipe at the end.
#pragma once

// `completed`: all workgroups ran to their end.
void finish_report(bool completed);

// The LDS pool of the kernel's library with its guard pages.
const char *tg_pool_begin();
const char *tg_pool_end();
