/* A loader of batches with a thread of its own, as extensions have: a queue of numbers, a lock and two conditions. */
#include <pthread.h>

enum { kCapacity = 2 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER, wanted = PTHREAD_COND_INITIALIZER;
static int waiting_batches, paused;
static long prepared;

static void *prepare_batches(void *unused) {
  for (;;) {
    pthread_mutex_lock(&lock);
    while (paused || waiting_batches == kCapacity) {
      pthread_cond_wait(&wanted, &lock);
    }
    ++waiting_batches;
    ++prepared;
    pthread_cond_signal(&filled);
    pthread_mutex_unlock(&lock);
  }
  return unused;
}

int start_loader(void) {
  pthread_t thread;
  return pthread_create(&thread, 0, prepare_batches, 0);
}

/* What has been prepared belongs to the epoch that is over. */
void pause_loader(void) {
  pthread_mutex_lock(&lock);
  paused = 1;
  waiting_batches = 0;
  pthread_mutex_unlock(&lock);
}

long next_batch(void) {
  pthread_mutex_lock(&lock);
  while (waiting_batches == 0) {
    pthread_cond_wait(&filled, &lock);
  }
  --waiting_batches;
  long number = prepared;
  pthread_cond_signal(&wanted);
  pthread_mutex_unlock(&lock);
  return number;
}
