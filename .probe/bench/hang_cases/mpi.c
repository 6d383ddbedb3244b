// One rank of an MPI job in C, built for MPICH and for Open MPI:  mpi CASE.  The ranks of HANGS_ODD do what CASE says.
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

static int rank, size;
static volatile int converged;
static pthread_mutex_t mesh = PTHREAD_MUTEX_INITIALIZER, halo = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;

static void announce(const char* how) {
  char path[4096], new_path[4100];
  snprintf(path, sizeof path, "%s/at.%d", getenv("HANGS_DIRECTORY"), rank);
  snprintf(new_path, sizeof new_path, "%s.new", path);
  FILE* out = fopen(new_path, "w");
  fprintf(out, "%d %s\n", getpid(), how);
  fclose(out);
  rename(new_path, path);
}

__attribute__((noinline)) void compute_forces(void) {
  while (!converged) {
  }
}

__attribute__((noinline)) double update_cells(double value, double inflow) {
  for (int i = 0; i < 10000000; i++) value = value * 0.999 + inflow * 1e-9;
  return value;
}

static void* exchange_halo(void* unused) {
  pthread_mutex_lock(&halo);
  pthread_barrier_wait(&both);
  pthread_mutex_lock(&mesh);
  return unused;
}

__attribute__((noinline)) void refine_mesh(void) {
  pthread_t thread;
  pthread_barrier_init(&both, NULL, 2);
  pthread_create(&thread, NULL, exchange_halo, NULL);
  pthread_mutex_lock(&mesh);
  pthread_barrier_wait(&both);
  pthread_mutex_lock(&halo);
}

__attribute__((noinline)) void read_input_deck(void) {
  char path[4096];
  snprintf(path, sizeof path, "%s/shard-0003.bin", getenv("HANGS_DIRECTORY"));
  int deck = open(path, O_RDONLY);
  if (read(deck, path, sizeof path) < 0) exit(1);
}

__attribute__((noinline)) void receive_from(int peer) {
  double value;
  MPI_Recv(&value, 1, MPI_DOUBLE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static int is_odd(void) {
  const char* odd = getenv("HANGS_ODD");
  return atoi(odd ? odd : "2") == rank;
}

int main(int count, char** arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  MPI_Init(&count, &arguments);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Barrier(MPI_COMM_WORLD);
  const char* chosen = count > 1 ? arguments[1] : "";
  double local = rank, sum = 0;

  if (!strcmp(chosen, "steps")) {
    for (long step = 0;; step++) {
      local = update_cells(local, sum);
      MPI_Allreduce(&local, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
      if (step == 3) announce("moves");
    }
  }
  const int sleeps = is_odd() && (!strcmp(chosen, "lock") || !strcmp(chosen, "file"));
  announce(sleeps ? "asleep" : "spins");      // a wait inside of MPI spins, or yields in a loop
  if (!strcmp(chosen, "ring")) receive_from((rank + 1) % size);
  if (!strcmp(chosen, "exchange") && rank < 2) receive_from(1 - rank);
  if (is_odd()) {
    if (!strcmp(chosen, "loop")) compute_forces();
    if (!strcmp(chosen, "lock")) refine_mesh();
    if (!strcmp(chosen, "file")) read_input_deck();
    if (!strcmp(chosen, "receive")) receive_from((rank + 1) % size);
    if (!strcmp(chosen, "broadcast")) MPI_Bcast(&local, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  }
  MPI_Allreduce(&local, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
