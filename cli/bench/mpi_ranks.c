/* One rank of an MPI that `shardway bench` compares with: mpirun -n N mpi_ranks TRIALS STOP
 *
 * TRIALS has a line for each call: its op, its elements, how often it is made in a round, and the part of
 * each rank. Rank 0 prints what the library is called, and then a line for each repetition: the number of the
 * trial, and its time in microseconds, from the first rank's start to the last one's end. All calls are made
 * in turn, round after round, until there is a file STOP. In the first round results are checked. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct trial {
  char op[32];
  int elements;
  int repetitions;
  int* parts; /* of each rank */
};

static int rank, ranks;
static float *input, *output;
static int *starts, *received, *received_starts;

static void fail(const char* why, const char* what) {
  fprintf(stderr, "%s%s\n", why, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void* memory_of(size_t bytes) {
  void* memory = calloc(1, bytes);
  if (memory == NULL) fail("there is not enough memory", "");
  return memory;
}

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int is_op(const struct trial* trial, const char* op) { return strcmp(trial->op, op) == 0; }

static void lay_out(const struct trial* trial) {
  for (int r = 0, start = 0; r < ranks; start += trial->parts[r++]) {
    starts[r] = start;
    received[r] = trial->parts[rank];
    received_starts[r] = r * trial->parts[rank];
  }
}

static void make(const struct trial* trial) {
  const int* parts = trial->parts;
  const int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
  if (is_op(trial, "all_gather")) {
    MPI_Allgatherv(input, parts[rank], MPI_FLOAT, output, parts, starts, MPI_FLOAT, MPI_COMM_WORLD);
  } else if (is_op(trial, "reduce_scatter")) {
    MPI_Reduce_scatter(input, output, parts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else if (is_op(trial, "all_reduce")) {
    MPI_Allreduce(input, output, trial->elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else if (is_op(trial, "all_to_all")) {
    MPI_Alltoallv(input, parts, starts, MPI_FLOAT, output, received, received_starts, MPI_FLOAT,
                  MPI_COMM_WORLD);
  } else if (is_op(trial, "permute")) {
    MPI_Sendrecv(input, trial->elements, MPI_FLOAT, next, 0, output, trial->elements, MPI_FLOAT, last, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else {
    fail("no call is named ", trial->op);
  }
}

/* Every rank has sent its number, and 1 more. */
static void check(const struct trial* trial) {
  const int is_gather = is_op(trial, "all_gather"), is_exchange = is_op(trial, "all_to_all");
  const float sum = (float)ranks * (float)(ranks + 1) / 2;
  const int from_last = is_op(trial, "permute") ? (rank + ranks - 1) % ranks + 1 : 0;
  int count = is_op(trial, "reduce_scatter") ? trial->parts[rank] : trial->elements;
  if (is_exchange) count = ranks * trial->parts[rank];
  for (int i = 0, from = 0; i < count; ++i) {
    while (is_gather && i >= starts[from] + trial->parts[from]) ++from;
    if (is_exchange) from = i / trial->parts[rank];
    const float expected = is_gather || is_exchange ? (float)(from + 1) : from_last ? (float)from_last : sum;
    if (output[i] != expected) fail("the result is wrong: ", trial->op);
  }
}

/* What it took; on rank 0. */
static double time_of(const struct trial* trial) {
  double begin, end, first = 0, last = 0;
  for (int i = 0; i < trial->elements; ++i) input[i] = (float)(rank + 1);
  MPI_Barrier(MPI_COMM_WORLD);
  begin = now_us();
  make(trial);
  end = now_us();
  MPI_Reduce(&begin, &first, 1, MPI_DOUBLE, MPI_MIN, 0, MPI_COMM_WORLD);
  MPI_Reduce(&end, &last, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  return last - first;
}

static struct trial* read_trials(const char* path, int* count) {
  FILE* file = fopen(path, "r");
  struct trial *trials = NULL, trial;
  if (file == NULL) fail("cannot be read: ", path);
  for (*count = 0; fscanf(file, "%31s %d %d", trial.op, &trial.elements, &trial.repetitions) == 3; ++*count) {
    trial.parts = memory_of((size_t)ranks * sizeof(int));
    for (int r = 0; r < ranks; ++r) {
      if (fscanf(file, "%d", &trial.parts[r]) != 1) fail("a trial lacks parts: ", path);
    }
    trials = realloc(trials, (size_t)(*count + 1) * sizeof(trial));
    if (trials == NULL) fail("there is not enough memory", "");
    trials[*count] = trial;
  }
  fclose(file);
  return trials;
}

static void print_name(void) {
  char name[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(name, &length);
  name[strcspn(name, "\n")] = 0;
  printf("%s\n", name);
}

int main(int argc, char** argv) {
  int count = 0, most = 0, goes_on = 1;
  struct trial* trials;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 4) fail("what is needed: TRIALS STOP RANKS", "");
  if (ranks != atoi(argv[3])) fail("its mpirun and its mpicc do not belong together", "");
  trials = read_trials(argv[1], &count);
  for (int i = 0; i < count; ++i) most = trials[i].elements > most ? trials[i].elements : most;
  input = memory_of((size_t)most * sizeof(float));
  output =
      memory_of(((size_t)2 * (size_t)most + (size_t)ranks) * sizeof(float)); /* no part is twice the mean */
  starts = memory_of((size_t)ranks * sizeof(int));
  received = memory_of((size_t)ranks * sizeof(int));
  received_starts = memory_of((size_t)ranks * sizeof(int));
  if (rank == 0) print_name();
  for (int round = 0; goes_on; ++round) {
    for (int i = 0; i < count && goes_on; ++i) {
      if (rank == 0) goes_on = access(argv[2], F_OK) != 0;
      MPI_Bcast(&goes_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
      if (!goes_on) break;
      lay_out(&trials[i]);
      time_of(&trials[i]); /* it finds in the caches what the trial before has left: it does not count */
      if (round == 0) check(&trials[i]);
      for (int k = 0; k < trials[i].repetitions; ++k) {
        const double us = time_of(&trials[i]);
        if (rank == 0) printf("%d %.3f\n", i, us);
      }
      if (rank == 0) fflush(stdout);
    }
  }
  MPI_Finalize();
  return 0;
}
