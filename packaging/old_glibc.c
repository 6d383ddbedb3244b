// Lets an executable that was linked on a new machine start on an old one.
//
// The linker binds each glibc function to its newest version on the building machine; the dynamic loader of an older
// machine then refuses the whole executable. Of the functions that this project and the libraries linked into it call,
// these few are newer than GLIBC_2.17; each is defined here, hidden, by means of functions that every glibc since then
// has. scripts/package fails, and names the symbol, if another one is needed.
//
// The versions that are bound with .symver are still in every new glibc, which keeps old executables running.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// GLIBC_2.32 to 2.34: libpthread became part of libc, and its functions got new versions. The executable also names libpthread.so.0, where an
// older glibc has them; a newer one has an empty library of that name.
#define OLD_VERSION(result, name, parameters, arguments)          \
  result old_##name parameters;                                   \
  __asm__(".symver old_" #name ", " #name "@GLIBC_2.2.5");        \
  result name parameters { return old_##name arguments; }

OLD_VERSION(int, pthread_create, (pthread_t * thread, const pthread_attr_t* attributes, void* (*start)(void*), void* argument),
            (thread, attributes, start, argument))
OLD_VERSION(int, pthread_attr_setstacksize, (pthread_attr_t * attributes, size_t size), (attributes, size))
OLD_VERSION(int, pthread_detach, (pthread_t thread), (thread))
OLD_VERSION(int, pthread_join, (pthread_t thread, void** result), (thread, result))
OLD_VERSION(int, pthread_once, (pthread_once_t * once, void (*routine)(void)), (once, routine))
OLD_VERSION(int, pthread_sigmask, (int how, const sigset_t* set, sigset_t* before), (how, set, before))
OLD_VERSION(int, __pthread_key_create, (pthread_key_t * key, void (*destructor)(void*)), (key, destructor))
OLD_VERSION(int, pthread_key_create, (pthread_key_t * key, void (*destructor)(void*)), (key, destructor))
OLD_VERSION(int, pthread_key_delete, (pthread_key_t key), (key))
OLD_VERSION(void*, pthread_getspecific, (pthread_key_t key), (key))
OLD_VERSION(int, pthread_setspecific, (pthread_key_t key, const void* value), (key, value))
OLD_VERSION(int, pthread_rwlock_init, (pthread_rwlock_t * lock, const pthread_rwlockattr_t* attributes), (lock, attributes))
OLD_VERSION(int, pthread_rwlock_destroy, (pthread_rwlock_t * lock), (lock))
OLD_VERSION(int, pthread_rwlock_rdlock, (pthread_rwlock_t * lock), (lock))
OLD_VERSION(int, pthread_rwlock_tryrdlock, (pthread_rwlock_t * lock), (lock))
OLD_VERSION(int, pthread_rwlock_wrlock, (pthread_rwlock_t * lock), (lock))
OLD_VERSION(int, pthread_rwlock_unlock, (pthread_rwlock_t * lock), (lock))

// GLIBC_2.27: symbolic links that lead nowhere are found as well.
OLD_VERSION(int, glob, (const char* pattern, int flags, int (*failed)(const char*, int), glob_t* found), (pattern, flags, failed, found))

// GLIBC_2.28. Linux 4.11 has the call; on older kernels it fails.
int statx(int directory, const char* path, int flags, unsigned mask, struct statx* found) {
  return (int)syscall(SYS_statx, directory, path, flags, mask, found);
}

// GLIBC_2.30: waits for a condition by a clock that the caller chooses. Older versions wait by the clock that the
// condition was made with, the time of day: the deadline is converted to that clock. The caller checks its own clock
// again after waking up, so a step of the time of day makes it wake up too early, or too late by the size of the step,
// and does no other harm.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const struct timespec* until) {
  struct timespec now, day, target = *until;
  if (clock != CLOCK_REALTIME) {
    if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &day) != 0) return EINVAL;
    target.tv_sec = until->tv_sec - now.tv_sec + day.tv_sec;
    target.tv_nsec = until->tv_nsec - now.tv_nsec + day.tv_nsec;
    for (; target.tv_nsec < 0; --target.tv_sec) target.tv_nsec += 1000000000;
    for (; target.tv_nsec >= 1000000000; ++target.tv_sec) target.tv_nsec -= 1000000000;
    if (target.tv_sec < 0) target.tv_sec = target.tv_nsec = 0;
  }
  return pthread_cond_timedwait(condition, mutex, &target);
}

// The same for libdl, which became part of libc too: the executable names libdl.so.2 for an older glibc.
OLD_VERSION(void*, dlopen, (const char* file, int mode), (file, mode))
OLD_VERSION(void*, dlsym, (void* library, const char* name), (library, name))
OLD_VERSION(int, dlclose, (void* library), (library))
OLD_VERSION(char*, dlerror, (void), ())

// GLIBC_2.34: the start-up code no longer contains the function that runs the executable's constructors, as the C
// library runs them itself. An older glibc runs what it is given here, and so does a newer one that is called by the
// old version of the symbol.
typedef void (*Constructor)(int, char**, char**);
extern Constructor __preinit_array_start[] __attribute__((visibility("hidden")));
extern Constructor __preinit_array_end[] __attribute__((visibility("hidden")));
extern Constructor __init_array_start[] __attribute__((visibility("hidden")));
extern Constructor __init_array_end[] __attribute__((visibility("hidden")));
extern void _init(void);

static void run_constructors(int argc, char** argv, char** environment) {
  _init();   // the loader has run the preinit array
  for (Constructor* each = __init_array_start; each < __init_array_end; ++each) (*each)(argc, argv, environment);
}

int old_libc_start_main(int (*main_function)(int, char**, char**), int argc, char** argv, Constructor init, void (*fini)(void),
                        void (*loader_fini)(void), void* stack_end);
__asm__(".symver old_libc_start_main, __libc_start_main@GLIBC_2.2.5");

int __libc_start_main(int (*main_function)(int, char**, char**), int argc, char** argv, Constructor init, void (*fini)(void),
                      void (*loader_fini)(void), void* stack_end) {
  (void)init;
  (void)fini;   // the loader runs the destructors
  return old_libc_start_main(main_function, argc, argv, run_constructors, NULL, loader_fini, stack_end);
}

// GLIBC_2.33: before, these were inline calls of another function. struct stat is the kernel's own on x86-64.
int stat(const char* path, struct stat* result) { return (int)syscall(SYS_stat, path, result); }
int lstat(const char* path, struct stat* result) { return (int)syscall(SYS_lstat, path, result); }
int fstat(int fd, struct stat* result) { return (int)syscall(SYS_fstat, fd, result); }
int fstatat(int directory, const char* path, struct stat* result, int flags) { return (int)syscall(SYS_newfstatat, directory, path, result, flags); }
int stat64(const char* path, struct stat64* result) { return (int)syscall(SYS_stat, path, result); }
int lstat64(const char* path, struct stat64* result) { return (int)syscall(SYS_lstat, path, result); }
int fstat64(int fd, struct stat64* result) { return (int)syscall(SYS_fstat, fd, result); }
int fstatat64(int directory, const char* path, struct stat64* result, int flags) { return (int)syscall(SYS_newfstatat, directory, path, result, flags); }

// GLIBC_2.32: true while a process has only one thread, so that reference counts need no atomic instruction. False is
// always correct.
char __libc_single_threaded = 0;

// GLIBC_2.25 and 2.36; the system call is newer than the kernel of a machine that still has glibc 2.17.
int getentropy(void* buffer, size_t size) {
  char* at = buffer;
  char* const end = at + size;
  while (at < end) {
    const long got = syscall(SYS_getrandom, at, end - at, 0);
    if (got <= 0) break;
    at += got;
  }
  if (at == end) return 0;
  const int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  while (at < end) {
    const ssize_t got = read(fd, at, (size_t)(end - at));
    if (got <= 0) break;
    at += got;
  }
  close(fd);
  return at == end ? 0 : -1;
}

unsigned arc4random(void) {
  unsigned value;
  if (getentropy(&value, sizeof value) != 0) abort();
  return value;
}

// GLIBC_2.35: by this libgcc finds the unwind table of the code that an exception passes through.
#ifdef DLFO_STRUCT_HAS_EH_DBASE
struct Sought {
  ElfW(Addr) address;
  struct dl_find_object* result;
};

static int find_in_object(struct dl_phdr_info* object, size_t size, void* data) {
  (void)size;
  const struct Sought* sought = data;
  const ElfW(Phdr)* loaded = NULL;
  const ElfW(Phdr)* table = NULL;
  for (ElfW(Half) i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)* header = &object->dlpi_phdr[i];
    if (header->p_type == PT_GNU_EH_FRAME) table = header;
    if (header->p_type == PT_LOAD && sought->address - object->dlpi_addr - header->p_vaddr < header->p_memsz) loaded = header;
  }
  if (loaded == NULL) return 0;
  if (table == NULL) return -1;
  sought->result->dlfo_flags = 0;
  sought->result->dlfo_map_start = (void*)(object->dlpi_addr + loaded->p_vaddr);
  sought->result->dlfo_map_end = (void*)(object->dlpi_addr + loaded->p_vaddr + loaded->p_memsz);
  sought->result->dlfo_link_map = NULL;
  sought->result->dlfo_eh_frame = (void*)(object->dlpi_addr + table->p_vaddr);
  return 1;
}

int _dl_find_object(void* address, struct dl_find_object* result) {
  struct Sought sought = {(ElfW(Addr))address, result};
  return dl_iterate_phdr(find_in_object, &sought) == 1 ? 0 : -1;
}
#endif
