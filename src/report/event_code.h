/* Events as protobuf bytes. Its own file, because a program built without protobuf-c has none. */
#ifndef NM_EVENT_CODE_H
#define NM_EVENT_CODE_H

#include "report/run.h"

bool nm_event_code_there(void);
/* The first event of a file, which says its version; heap. */
uint8_t *nm_event_code_version(double time, size_t *bytes);
/* What a run that holds a single line of a log says, as one event; NULL when that is nothing. Heap. */
uint8_t *nm_event_code_line(const nm_report_run *line, double start, size_t *bytes);

#endif
