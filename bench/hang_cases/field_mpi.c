// One rank of an MPI job in C, built for MPICH and for Open MPI:  field_mpi CASE.
// Held out: written without a look at the rules of the tool (docs/benchmark.md).
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { kGoodSteps = 3, kHalo = 7, kOtherHalo = 8, kWork = 1, kResult = 2 };

static int rank, size;
static volatile int converged;

static void announce(const char* how) {
  char path[4096], new_path[4100];
  snprintf(path, sizeof path, "%s/at.%d", getenv("HANGS_DIRECTORY"), rank);
  snprintf(new_path, sizeof new_path, "%s.new", path);
  FILE* out = fopen(new_path, "w");
  fprintf(out, "%d %s\n", getpid(), how);
  fclose(out);
  rename(new_path, path);
}

static int is_odd(void) {
  return atoi(getenv("HANGS_ODD")) == rank;
}

__attribute__((noinline)) void solve_implicitly(void) {
  double residual = 1;
  while (!converged) residual = residual * 0.5 + 0.5;
}

__attribute__((noinline)) double integrate(double value) {
  for (int i = 0; i < 10000000; i++) value = value * 0.999 + 1e-9;
  return value;
}

// Each rank exchanges a halo with both neighbours. The odd rank expects one of them under another tag in its fourth step.
static void exchange_halos(int step) {
  double out[2] = {rank, rank}, in[2];
  MPI_Request requests[4];
  MPI_Status statuses[4];
  const int left = (rank + size - 1) % size, right = (rank + 1) % size;
  MPI_Irecv(&in[0], 1, MPI_DOUBLE, left, is_odd() && step == kGoodSteps ? kOtherHalo : kHalo, MPI_COMM_WORLD, &requests[0]);
  MPI_Irecv(&in[1], 1, MPI_DOUBLE, right, kHalo, MPI_COMM_WORLD, &requests[1]);
  MPI_Isend(&out[0], 1, MPI_DOUBLE, left, kHalo, MPI_COMM_WORLD, &requests[2]);
  MPI_Isend(&out[1], 1, MPI_DOUBLE, right, kHalo, MPI_COMM_WORLD, &requests[3]);
  MPI_Waitall(4, requests, statuses);
}

static void halo(void) {
  double sum = 0, value = 1;
  for (int step = 0; step <= kGoodSteps; step++) {
    if (step == kGoodSteps) announce("spins");
    exchange_halos(step);
    MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  }
}

// Rank 0 hands out work. One of the workers never ends what it was given; those that have ended wait for the result of all.
static void master(void) {
  double result = 0;
  for (int worker = 1; worker < size; worker++) MPI_Send(&result, 1, MPI_DOUBLE, worker, kWork, MPI_COMM_WORLD);
  announce("spins");
  for (int worker = 1; worker < size; worker++) MPI_Recv(&result, 1, MPI_DOUBLE, MPI_ANY_SOURCE, kResult, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void worker(void) {
  double task = 0;
  MPI_Recv(&task, 1, MPI_DOUBLE, 0, kWork, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  announce("spins");
  if (is_odd()) solve_implicitly();
  MPI_Send(&task, 1, MPI_DOUBLE, 0, kResult, MPI_COMM_WORLD);
}

static void farm(void) {
  double result = 0;
  if (rank == 0) master();
  else worker();
  MPI_Bcast(&result, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
}

// Rows and columns of a grid of 2 x 2. The odd rank sums up along its column while all others sum up along their rows and go on.
static void grid(void) {
  MPI_Comm row, column;
  double sum = 0, value = 1;
  MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &row);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &column);
  announce("spins");
  MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, is_odd() ? column : row);
  MPI_Barrier(MPI_COMM_WORLD);
}

// A healthy job: rank 0 hands out work without end.
static void work(void) {
  double task = 0;
  MPI_Status status;
  for (long number = 0;; number++) {
    if (rank == 0) {
      MPI_Recv(&task, 1, MPI_DOUBLE, MPI_ANY_SOURCE, kResult, MPI_COMM_WORLD, &status);
      MPI_Send(&task, 1, MPI_DOUBLE, status.MPI_SOURCE, kWork, MPI_COMM_WORLD);
    } else {
      MPI_Send(&task, 1, MPI_DOUBLE, 0, kResult, MPI_COMM_WORLD);
      MPI_Recv(&task, 1, MPI_DOUBLE, 0, kWork, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      for (int i = 0; i < 10 * rank; i++) task = integrate(task);
    }
    if (number == kGoodSteps) announce("moves");
  }
}

int main(int count, char** arguments) {
  if (count != 2) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  MPI_Init(&count, &arguments);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (strcmp(arguments[1], "halo") == 0) halo();
  if (strcmp(arguments[1], "farm") == 0) farm();
  if (strcmp(arguments[1], "grid") == 0) grid();
  if (strcmp(arguments[1], "work") == 0) work();
  MPI_Finalize();
}
