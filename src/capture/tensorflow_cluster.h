// TF_CONFIG, the variable by which a task of a distributed TensorFlow job knows the job's other tasks and its own place
// among them (tf.distribute.cluster_resolver.TFConfigClusterResolver; Kubeflow's TFJob sets it).
//
//     {"cluster": {"chief": ["a:2222"], "worker": ["b:2222", "c:2222"], "ps": ["d:2222"]},
//      "task": {"type": "worker", "index": 1}}                                              this one is rank 2 of 3
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace rankstacks::capture {

struct TensorflowTask {
  int rank = 0, world_size = 0;
  std::string first_address;    // of rank 0
  bool on_one_machine = false;  // all ranks have a loopback address
};

// The ranks are those that take part in collectives, in the order in which MultiWorkerMirroredStrategy numbers them
// (tensorflow/python/distribute/multi_worker_util.py: id_in_cluster): the chief (the "master" of TensorFlow 1), then
// the workers. std::nullopt: it is another task (a parameter server, an evaluator), or the text is not such a JSON, has
// more than 1 MiB, or nests deeper than it should.
std::optional<TensorflowTask> task_of_tf_config(std::string_view text);

// Whether it is the TF_CONFIG of a task that is no rank, though the job has some: a parameter server, an evaluator.
bool is_no_rank_of_tf_config(std::string_view text);

}  // namespace rankstacks::capture
