#include "transport/mpi/process_name.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace baton;

TEST_CASE("a process is over when it has ended, not when it sleeps or its pid has a new owner") {
  int line[2];
  REQUIRE(pipe(line) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string text = process_name_text(own_process_name()) + "\n";
    if (write(line[1], text.data(), text.size()) < 0) _exit(1);
    for (;;) pause();
  }
  std::string text;
  for (char c = 0; read(line[0], &c, 1) == 1 && c != '\n';) text += c;
  const ProcessName name = *parse_process_name(text);
  CHECK(name.pid == child);
  CHECK_FALSE(process_is_over(name));
  kill(child, SIGSTOP);
  int status = 0;
  REQUIRE(waitpid(child, &status, WUNTRACED) == child);
  CHECK_FALSE(process_is_over(name));
  ProcessName elsewhere = name;
  elsewhere.host = "another";
  ProcessName earlier = name;
  earlier.started_at -= 1;
  CHECK(process_is_over(earlier));
  kill(child, SIGKILL);
  siginfo_t info;
  REQUIRE(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
  CHECK(process_is_over(name));  // killed, and not yet asked for by its parent
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(process_is_over(name));
  CHECK_FALSE(process_is_over(elsewhere));  // cannot be seen from here
  close(line[0]);
  close(line[1]);
}

TEST_CASE("what does not name a process is refused") {
  CHECK(parse_process_name(process_name_text({"h", 7, 9}))->started_at == 9);
  for (const char* text : {"", "host", "host x 1", "host 0 1", "host -4 1", "host 5"}) {
    CHECK_FALSE(parse_process_name(text).ok());
  }
}
