// Called from Python by ctypes: a loop that never ends, two threads that wait for each other's mutex, many threads that
// wait for one mutex, a thread that joins one that joins another, readers behind a writer, a thread that reads, a wild
// pointer.
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

static volatile int finished;
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER, journal = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;

void simulate_particles(void) {
  while (!finished) {
  }
}

static void* write_journal(void* unused) {
  pthread_mutex_lock(&journal);
  pthread_barrier_wait(&both);
  pthread_mutex_lock(&table);
  return unused;
}

void update_statistics(void) {
  pthread_t writer;
  pthread_barrier_init(&both, NULL, 2);
  pthread_create(&writer, NULL, write_journal, NULL);
  pthread_mutex_lock(&table);
  pthread_barrier_wait(&both);
  pthread_mutex_lock(&journal);
}

int interpolate_table(const int* values) {
  return values[7] + values[8];
}

static void* keep_table(void* unused) {
  pthread_mutex_lock(&table);
  pthread_barrier_wait(&both);
  for (;;) pause();
  return unused;
}

static void* update_table(void* unused) {
  pthread_mutex_lock(&table);
  pthread_mutex_unlock(&table);
  return unused;
}

void update_all_tables(void) {
  enum { kThreads = 6 };
  pthread_t keeper, threads[kThreads];
  pthread_barrier_init(&both, NULL, 2);
  pthread_create(&keeper, NULL, keep_table, NULL);
  pthread_barrier_wait(&both);
  for (int i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, update_table, NULL);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
}

static void* write_shard(void* unused) {
  for (;;) pause();
  return unused;
}

static void* flush_shards(void* unused) {
  pthread_t writer;
  pthread_create(&writer, NULL, write_shard, NULL);
  pthread_join(writer, NULL);
  return unused;
}

void close_store(void) {
  pthread_t flusher;
  pthread_create(&flusher, NULL, flush_shards, NULL);
  pthread_join(flusher, NULL);
}

static pthread_rwlock_t index_lock = PTHREAD_RWLOCK_INITIALIZER;

static void* rewrite_index(void* unused) {
  pthread_rwlock_wrlock(&index_lock);
  pthread_barrier_wait(&both);
  for (;;) pause();
  return unused;
}

int look_up_in_index(void) {
  pthread_t writer;
  pthread_barrier_init(&both, NULL, 2);
  pthread_create(&writer, NULL, rewrite_index, NULL);
  pthread_barrier_wait(&both);
  pthread_rwlock_rdlock(&index_lock);
  return 0;
}

static const char* input;
static pthread_mutex_t engine = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static int ready;

static void* read_tile(void* unused) {
  char tile[64];
  const int file = open(input, O_RDONLY);
  const ssize_t got = read(file, tile, sizeof tile);
  pthread_mutex_lock(&engine);
  ready = got > 0;
  pthread_cond_signal(&filled);
  pthread_mutex_unlock(&engine);
  return unused;
}

void run_engine(const char* path) {
  pthread_t reader;
  input = path;
  pthread_create(&reader, NULL, read_tile, NULL);
  pthread_mutex_lock(&engine);
  while (!ready) pthread_cond_wait(&filled, &engine);
  pthread_mutex_unlock(&engine);
}
