// A fake management library (NVML) for tests. It reports what the file "scenario" in its directory says, and supports
// nothing else.
//
//     init 0 | 18 ...          the result of nvmlInit_v2; `init hang`: it does not return
//     driver 580.159.04
//     gpu                      what follows is about the next device
//     fails 15                 its handle is refused with this result; `fails hang`: the call does not return
//     pci 0 10 0               domain, bus, device
//     uuid ..., name ..., minor 0, mig 0
//     list 24 | 32             length of a row of the process list; without it there is no list; `list refused`: no
//                              permission
//     process 4711 1000        memory -1: not reported
//     mps 4711 1000            in the list of MPS
//     samples 10 20 30         of the utilization
//     memory-samples 10 20     of the memory's utilization
//     power-samples 700000 500000   milliwatts; half a second between them
//     memory 10 2 100          used, reserved, total
//     clock 1 1980 1980        kind, now, at most
//     throttle 12, power 700000 700000, temperature 60, ecc 0 0 (corrected, uncorrected), rows 0 0 0 0
//     link 0 1 3               number, state, each of its error counters; `fields`: links are reported by field values
//                              instead
//     pcie 16 16 5 5           width, at most, generation, at most
//
// Built with -DOLD_DRIVER it has the names of the drivers of 2020.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kSuccess = 0, kNotSupported = 3, kNoPermission = 4, kNotFound = 6, kTooSmall = 7, kMax = 4096 };

struct Process {
  int pid;
  long long memory;
};

struct Gpu {
  int fails, hangs, has_pci, has_minor, has_mig, list, has_memory, has_throttle, has_power, has_temperature, has_ecc, has_rows, has_pcie, fields;
  unsigned pci[3], minor, mig, clocks[4], max_clocks[4], power[2], temperature, rows[4], pcie[4];
  char uuid[96], name[96];
  struct Process processes[kMax], mps[kMax];
  unsigned process_count, mps_count;
  unsigned samples[3][256], sample_count[3];  // by nvmlSamplingType_t: power, utilization, memory
  unsigned long long memory[3], throttle, ecc[2];
  int link_state[18];                      // -1: no such link
  unsigned long long link_errors[18];
};

static struct Gpu* gpus[16];
static unsigned gpu_count;
static char driver[80];
static int init_result, init_hangs;

static void hang(void) {
  for (;;) pause();
}

static void read_samples(struct Gpu* gpu, int kind, char* text) {
  for (char* at = strtok(text, " "); at != NULL && gpu->sample_count[kind] < 256; at = strtok(NULL, " "))
    gpu->samples[kind][gpu->sample_count[kind]++] = (unsigned)atoi(at);
}

static void read_line(char* line) {
  char word[32] = "", text[512] = "";
  struct Gpu* gpu = gpu_count > 0 ? gpus[gpu_count - 1] : NULL;
  line[strcspn(line, "\n")] = 0;
  if (sscanf(line, "%31s %511[^\n]", word, text) < 1) return;
  if (strcmp(word, "init") == 0) {
    init_hangs = strcmp(text, "hang") == 0;
    init_result = atoi(text);
  } else if (strcmp(word, "driver") == 0) {
    snprintf(driver, sizeof driver, "%.79s", text);
  } else if (strcmp(word, "gpu") == 0) {
    gpus[gpu_count++] = gpu = calloc(1, sizeof *gpu);
    for (int i = 0; i < 18; ++i) gpu->link_state[i] = -1;
  } else if (gpu == NULL) {
    abort();
  } else if (strcmp(word, "fails") == 0) {
    gpu->hangs = strcmp(text, "hang") == 0;
    gpu->fails = atoi(text);
  } else if (strcmp(word, "pci") == 0) {
    gpu->has_pci = sscanf(text, "%u %u %u", &gpu->pci[0], &gpu->pci[1], &gpu->pci[2]) == 3;
  } else if (strcmp(word, "uuid") == 0) {
    snprintf(gpu->uuid, sizeof gpu->uuid, "%.95s", text);
  } else if (strcmp(word, "name") == 0) {
    snprintf(gpu->name, sizeof gpu->name, "%.95s", text);
  } else if (strcmp(word, "minor") == 0) {
    gpu->has_minor = sscanf(text, "%u", &gpu->minor) == 1;
  } else if (strcmp(word, "mig") == 0) {
    gpu->has_mig = sscanf(text, "%u", &gpu->mig) == 1;
  } else if (strcmp(word, "list") == 0) {
    gpu->list = strcmp(text, "refused") == 0 ? -1 : atoi(text);
  } else if (strcmp(word, "process") == 0) {
    struct Process* p = &gpu->processes[gpu->process_count++];
    sscanf(text, "%d %lld", &p->pid, &p->memory);
  } else if (strcmp(word, "mps") == 0) {
    struct Process* p = &gpu->mps[gpu->mps_count++];
    sscanf(text, "%d %lld", &p->pid, &p->memory);
  } else if (strcmp(word, "samples") == 0) {
    read_samples(gpu, 1, text);
  } else if (strcmp(word, "memory-samples") == 0) {
    read_samples(gpu, 2, text);
  } else if (strcmp(word, "power-samples") == 0) {
    read_samples(gpu, 0, text);
  } else if (strcmp(word, "memory") == 0) {
    gpu->has_memory = sscanf(text, "%llu %llu %llu", &gpu->memory[0], &gpu->memory[1], &gpu->memory[2]) == 3;
  } else if (strcmp(word, "clock") == 0) {
    unsigned kind = 0, now = 0, most = 0;
    sscanf(text, "%u %u %u", &kind, &now, &most);
    gpu->clocks[kind & 3] = now;
    gpu->max_clocks[kind & 3] = most;
  } else if (strcmp(word, "throttle") == 0) {
    gpu->has_throttle = sscanf(text, "%llu", &gpu->throttle) == 1;
  } else if (strcmp(word, "power") == 0) {
    gpu->has_power = sscanf(text, "%u %u", &gpu->power[0], &gpu->power[1]) == 2;
  } else if (strcmp(word, "temperature") == 0) {
    gpu->has_temperature = sscanf(text, "%u", &gpu->temperature) == 1;
  } else if (strcmp(word, "ecc") == 0) {
    gpu->has_ecc = sscanf(text, "%llu %llu", &gpu->ecc[0], &gpu->ecc[1]) == 2;
  } else if (strcmp(word, "rows") == 0) {
    gpu->has_rows = sscanf(text, "%u %u %u %u", &gpu->rows[0], &gpu->rows[1], &gpu->rows[2], &gpu->rows[3]) == 4;
  } else if (strcmp(word, "fields") == 0) {
    gpu->fields = 1;
  } else if (strcmp(word, "link") == 0) {
    unsigned link = 0;
    int state = 0;
    unsigned long long errors = 0;
    sscanf(text, "%u %d %llu", &link, &state, &errors);
    if (link >= 18) abort();
    gpu->link_state[link] = state;
    gpu->link_errors[link] = errors;
  } else if (strcmp(word, "pcie") == 0) {
    gpu->has_pcie = sscanf(text, "%u %u %u %u", &gpu->pcie[0], &gpu->pcie[1], &gpu->pcie[2], &gpu->pcie[3]) == 4;
  } else {
    abort();
  }
}

int nvmlInit_v2(void) {
  Dl_info here;
  char path[4096], line[1024];
  if (dladdr((void*)nvmlInit_v2, &here) == 0 || realpath(here.dli_fname, path) == NULL) return 999;   // loaded as /proc/self/fd/N
  *strrchr(path, '/') = 0;
  strcat(path, "/scenario");
  FILE* file = fopen(path, "r");
  if (file == NULL) return 999;
  while (fgets(line, sizeof line, file) != NULL) read_line(line);
  fclose(file);
  if (init_hangs) hang();
  return init_result;
}

const char* nvmlErrorString(int code) {
  return code == 15 ? "GPU is lost" : code == 18 ? "Driver/library version mismatch" : code == kNoPermission ? "Insufficient Permissions" : "Unknown Error";
}

static int give_text(const char* text, char* out, unsigned size) {
  if (*text == 0) return kNotSupported;
  if (strlen(text) >= size) return kTooSmall;
  strcpy(out, text);
  return kSuccess;
}

#define GIVE(condition, value) \
  if (!(condition)) return kNotSupported; \
  *out = (value); \
  return kSuccess

int nvmlSystemGetDriverVersion(char* out, unsigned size) { return give_text(driver, out, size); }
int nvmlDeviceGetCount_v2(unsigned* out) { GIVE(1, gpu_count); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct Gpu** out) {
  if (index >= gpu_count) return kNotFound;
  if (gpus[index]->hangs) hang();
  *out = gpus[index];
  return gpus[index]->fails;
}

struct Pci {
  char legacy[16];
  unsigned domain, bus, device, device_id, subsystem;
  char id[32];
};
int nvmlDeviceGetPciInfo_v3(struct Gpu* gpu, struct Pci* out) {
  if (!gpu->has_pci) return kNotSupported;
  memset(out, 0, sizeof *out);
  out->domain = gpu->pci[0];
  out->bus = gpu->pci[1];
  out->device = gpu->pci[2];
  snprintf(out->id, sizeof out->id, "%08X:%02X:%02X.0", out->domain, out->bus & 0xff, out->device & 0xff);
  return kSuccess;
}
int nvmlDeviceGetUUID(struct Gpu* gpu, char* out, unsigned size) { return give_text(gpu->uuid, out, size); }
int nvmlDeviceGetName(struct Gpu* gpu, char* out, unsigned size) { return give_text(gpu->name, out, size); }
int nvmlDeviceGetMinorNumber(struct Gpu* gpu, unsigned* out) { GIVE(gpu->has_minor, gpu->minor); }

static int give_list(const struct Gpu* gpu, const struct Process* list, unsigned count, unsigned* room, char* out) {
  if (gpu->list == 0) return kNotSupported;
  if (gpu->list < 0) return kNoPermission;
  if (*room < count) {
    *room = count;
    return kTooSmall;
  }
  *room = count;
  for (unsigned i = 0; i < count; ++i, out += gpu->list) {
    const unsigned pid = (unsigned)list[i].pid, instance = 0xffffffffu;
    const unsigned long long memory = (unsigned long long)list[i].memory, zero = 0;
    memcpy(out, &pid, 4);
    memcpy(out + 8, &memory, 8);
    memcpy(out + 16, &instance, 4);
    memcpy(out + 20, &instance, 4);
    if (gpu->list == 32) memcpy(out + 24, &zero, 8);
  }
  return kSuccess;
}
#ifdef OLD_DRIVER
#define COMPUTE nvmlDeviceGetComputeRunningProcesses_v2
#define REASONS nvmlDeviceGetCurrentClocksThrottleReasons
#else
#define COMPUTE nvmlDeviceGetComputeRunningProcesses_v3
#define REASONS nvmlDeviceGetCurrentClocksEventReasons
int nvmlDeviceGetMPSComputeRunningProcesses_v3(struct Gpu* gpu, unsigned* room, char* out) { return give_list(gpu, gpu->mps, gpu->mps_count, room, out); }
int nvmlDeviceGetMemoryInfo_v2(struct Gpu* gpu, unsigned long long* out) {
  if ((unsigned)*out != (40u | 2u << 24)) return 25;
  if (!gpu->has_memory) return kNotSupported;
  out[1] = gpu->memory[2];
  out[2] = gpu->memory[1];
  out[3] = gpu->memory[2] - gpu->memory[1] - gpu->memory[0];
  out[4] = gpu->memory[0];
  return kSuccess;
}
#endif
int COMPUTE(struct Gpu* gpu, unsigned* room, char* out) { return give_list(gpu, gpu->processes, gpu->process_count, room, out); }

struct Sample {
  unsigned long long time;
  union {
    unsigned number;
    double space;
  };
};
int nvmlDeviceGetSamples(struct Gpu* gpu, int kind, unsigned long long since, int* type, unsigned* count, struct Sample* out) {
  (void)since;
  if (kind < 0 || kind > 2 || gpu->sample_count[kind] == 0) return kNotFound;
  *type = 1;
  if (out != NULL)
    for (unsigned i = 0; i < *count && i < gpu->sample_count[kind]; ++i) {
      out[i].time = 1700000000000000ull + i * (kind == 0 ? 500000 : 1);
      out[i].space = -1;
      out[i].number = gpu->samples[kind][i];
    }
  *count = gpu->sample_count[kind];
  return kSuccess;
}
int nvmlDeviceGetMemoryInfo(struct Gpu* gpu, unsigned long long* out) {
  if (!gpu->has_memory) return kNotSupported;
  out[0] = gpu->memory[2];
  out[1] = gpu->memory[2] - gpu->memory[1] - gpu->memory[0];
  out[2] = gpu->memory[0] + gpu->memory[1];
  return kSuccess;
}
int nvmlDeviceGetClockInfo(struct Gpu* gpu, int kind, unsigned* out) { GIVE(gpu->clocks[kind & 3] != 0, gpu->clocks[kind & 3]); }
int nvmlDeviceGetMaxClockInfo(struct Gpu* gpu, int kind, unsigned* out) { GIVE(gpu->max_clocks[kind & 3] != 0, gpu->max_clocks[kind & 3]); }
int REASONS(struct Gpu* gpu, unsigned long long* out) { GIVE(gpu->has_throttle, gpu->throttle); }
int nvmlDeviceGetPowerUsage(struct Gpu* gpu, unsigned* out) { GIVE(gpu->has_power, gpu->power[0]); }
int nvmlDeviceGetEnforcedPowerLimit(struct Gpu* gpu, unsigned* out) { GIVE(gpu->has_power, gpu->power[1]); }
int nvmlDeviceGetTemperature(struct Gpu* gpu, int sensor, unsigned* out) { GIVE(sensor == 0 && gpu->has_temperature, gpu->temperature); }
int nvmlDeviceGetTotalEccErrors(struct Gpu* gpu, int kind, int counter, unsigned long long* out) { GIVE(counter == 0 && gpu->has_ecc, gpu->ecc[kind & 1]); }
int nvmlDeviceGetRemappedRows(struct Gpu* gpu, unsigned* corrected, unsigned* uncorrected, unsigned* pending, unsigned* failed) {
  if (!gpu->has_rows) return kNotSupported;
  *corrected = gpu->rows[0];
  *uncorrected = gpu->rows[1];
  *pending = gpu->rows[2];
  *failed = gpu->rows[3];
  return kSuccess;
}
int nvmlDeviceGetNvLinkState(struct Gpu* gpu, unsigned link, unsigned* out) { GIVE(!gpu->fields && link < 18 && gpu->link_state[link] >= 0, (unsigned)gpu->link_state[link]); }
// Of the five kinds the last is not supported, as on current devices.
int nvmlDeviceGetNvLinkErrorCounter(struct Gpu* gpu, unsigned link, int kind, unsigned long long* out) { GIVE(!gpu->fields && link < 18 && kind < 4, gpu->link_errors[link]); }

struct Field {
  unsigned id, scope;
  long long time, latency;
  int type, result;
  unsigned long long value;
};
int nvmlDeviceGetFieldValues(struct Gpu* gpu, int count, struct Field* fields) {
  for (int i = 0; i < count; ++i) {
    struct Field* f = &fields[i];
    unsigned links = 0;
    for (int link = 0; link < 18; ++link) links += gpu->link_state[link] >= 0;
    f->result = kNotSupported;
    f->type = 3;
    if (f->id == 91 && links > 0) {
      f->type = 1;
      f->value = 0xeeeeeeee00000000ull | links;
      f->result = kSuccess;
    } else if (gpu->fields && f->scope < 18 && gpu->link_state[f->scope] >= 0 && f->id >= 161 && f->id <= 165 && f->id != 164) {
      f->value = f->id == 165 ? (unsigned)gpu->link_state[f->scope] : gpu->link_errors[f->scope];
      f->result = kSuccess;
    }
  }
  return kSuccess;
}
int nvmlDeviceGetCurrPcieLinkWidth(struct Gpu* gpu, unsigned* out) { GIVE(gpu->has_pcie, gpu->pcie[0]); }
int nvmlDeviceGetMaxPcieLinkWidth(struct Gpu* gpu, unsigned* out) { GIVE(gpu->has_pcie, gpu->pcie[1]); }
int nvmlDeviceGetCurrPcieLinkGeneration(struct Gpu* gpu, unsigned* out) { GIVE(gpu->has_pcie, gpu->pcie[2]); }
int nvmlDeviceGetMaxPcieLinkGeneration(struct Gpu* gpu, unsigned* out) { GIVE(gpu->has_pcie, gpu->pcie[3]); }
int nvmlDeviceGetMigMode(struct Gpu* gpu, unsigned* out, unsigned* pending) {
  if (!gpu->has_mig) return kNotSupported;
  *out = *pending = gpu->mig;
  return kSuccess;
}
