// Called from Python by field.py, field_data.py and field_more.py: a client with a network thread of its own, a mutex that is held during a call
// back into Python, a driver that polls, a pool of threads that a child process inherits without its threads, and threads that meet at a barrier.
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static pthread_mutex_t answers = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;
static int answered;

static void* receive_answers(void* connection) {
  char answer[64];
  if (recv((int)(long)connection, answer, sizeof answer, 0) < 0) abort();
  pthread_mutex_lock(&answers);
  answered = 1;
  pthread_cond_broadcast(&arrived);
  pthread_mutex_unlock(&answers);
  return NULL;
}

void client_call(int connection) {
  pthread_t network;
  pthread_create(&network, NULL, receive_answers, (void*)(long)connection);
  pthread_mutex_lock(&answers);
  while (!answered) pthread_cond_wait(&arrived, &answers);
  pthread_mutex_unlock(&answers);
}

static pthread_mutex_t rows = PTHREAD_MUTEX_INITIALIZER;
static volatile int visited, wanted;

int rows_are_visited(void) {
  return visited;
}

void visit_rows(void (*visit)(void)) {
  pthread_mutex_lock(&rows);
  visited = 1;
  while (!wanted) sched_yield();
  visit();
  pthread_mutex_unlock(&rows);
}

void append_row(void) {
  wanted = 1;
  pthread_mutex_lock(&rows);
  pthread_mutex_unlock(&rows);
}

static volatile int device_ready;

void wait_for_device(void) {
  while (!device_ready) usleep(1000);
}

static pthread_mutex_t work = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t submitted = PTHREAD_COND_INITIALIZER, finished = PTHREAD_COND_INITIALIZER;
static int pending, started;

static void* run_work(void* unused) {
  pthread_mutex_lock(&work);
  for (;;) {
    while (!pending) pthread_cond_wait(&submitted, &work);
    pending--;
    pthread_cond_broadcast(&finished);
  }
  return unused;
}

void resize_image(void) {
  pthread_mutex_lock(&work);
  if (!started) {
    pthread_t threads[2];
    for (int i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, run_work, NULL);
    started = 1;
  }
  pending = 2;
  pthread_cond_broadcast(&submitted);
  while (pending) pthread_cond_wait(&finished, &work);
  pthread_mutex_unlock(&work);
}

static pthread_barrier_t transformed;

static void* read_coefficients(void* path) {
  char coefficients[64];
  const int file = open(path, O_RDONLY);
  if (file < 0 || read(file, coefficients, sizeof coefficients) < 0) abort();
  pthread_barrier_wait(&transformed);
  return NULL;
}

static void* transform(void* unused) {
  pthread_barrier_wait(&transformed);
  return unused;
}

void transform_in_parallel(const char* path) {
  pthread_t threads[3];
  pthread_barrier_init(&transformed, NULL, 4);
  for (int i = 0; i < 3; ++i) pthread_create(&threads[i], NULL, i == 1 ? read_coefficients : transform, (void*)path);
  pthread_barrier_wait(&transformed);
}
