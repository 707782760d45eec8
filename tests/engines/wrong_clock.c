// Makes the clock of a process and of its children wrong by the seconds in SECONDS_AHEAD. Time that
// has passed (CLOCK_MONOTONIC) stays right. libfaketime also replaces functions that wait: with it,
// clock_nanosleep fails, and threads halt.
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long ahead(void) {
  const char *seconds = getenv("SECONDS_AHEAD");
  return seconds ? atol(seconds) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = syscall(SYS_clock_gettime, clock, now);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    now->tv_sec += ahead();
  return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
  int failed = syscall(SYS_gettimeofday, now, zone);
  if (!failed && now)
    now->tv_sec += ahead();
  return failed;
}

time_t time(time_t *result) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (result)
    *result = now.tv_sec;
  return now.tv_sec;
}
