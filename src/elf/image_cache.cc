#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <tuple>

#include "elf/image_impl.h"

namespace rankstacks::elf {
namespace {

using Identity = std::tuple<dev_t, ino_t, off_t, std::int64_t, std::int64_t>;  // device, inode, size, mtime in s and ns

}  // namespace

struct ImageCache::Impl {
  std::chrono::steady_clock::duration longest_wait;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<Identity, Result<std::shared_ptr<const Image>>> images;
  std::map<std::string, Error> not_opened;  // by path, as no identity is known
  std::set<std::string> looked_for;         // paths that some thread is opening now
  MountNamespaces namespaces;
  std::set<Identity> read;  // files that some thread is reading now

  // The first thread that asks does the work. The others wait for that file only, and not forever: the first may never
  // return.
  template <class Key>
  bool wait_for_turn(std::unique_lock<std::mutex>& lock, std::set<Key>& busy, const Key& key) {
    const auto is_free = [&] { return !busy.contains(key); };
    if (longest_wait == std::chrono::steady_clock::duration::max()) changed.wait(lock, is_free);
    else if (!changed.wait_for(lock, longest_wait, is_free)) return false;
    return true;
  }
};

ImageCache::ImageCache(std::chrono::steady_clock::duration longest_wait) : impl_(std::make_unique<Impl>()) {
  impl_->longest_wait = longest_wait;
}
ImageCache::~ImageCache() = default;

Result<std::shared_ptr<const Image>> ImageCache::open(const std::string& path, const std::string& shown_name) {
  return open(path, shown_name, [&] { return open_regular(path, shown_name); });
}

Result<std::shared_ptr<const Image>> ImageCache::open_below(const std::string& root, const std::string& path,
                                                            const std::string& shown_name) {
  return open(root + path, shown_name, [&] { return open_regular_below(root, path, shown_name); });
}

Result<std::shared_ptr<const Image>> ImageCache::open(const std::string& path, const std::string& shown_name,
                                                      const std::function<Result<OpenedFile>()>& open_file) {
  // A cached error is given the name that the file is asked for by now.
  const auto renamed = [&](Error error) {
    error.subject = shown_name;
    return fail(std::move(error));
  };
  const auto silent = [&] {
    Error error{.code = ErrorCode::kTimeout,
                .subject = shown_name,
                .what = "does not answer: another read of it has not returned"};
    impl_->not_opened.emplace(path, error);
    return fail(std::move(error));
  };
  std::unique_lock lock(impl_->mutex);
  if (const auto known = impl_->not_opened.find(path); known != impl_->not_opened.end()) return renamed(known->second);
  if (!impl_->wait_for_turn(lock, impl_->looked_for, path)) return silent();
  if (const auto known = impl_->not_opened.find(path); known != impl_->not_opened.end()) return renamed(known->second);
  impl_->looked_for.insert(path);
  lock.unlock();
  auto file = open_file();
  lock.lock();
  impl_->looked_for.erase(path);
  impl_->changed.notify_all();
  if (!file) {
    impl_->not_opened.emplace(path, file.error());
    return fail(file.error());
  }
  const auto& s = file->status;
  const Identity identity{s.st_dev, s.st_ino, s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec};
  const auto known_image = [&]() -> std::optional<Result<std::shared_ptr<const Image>>> {
    const auto known = impl_->images.find(identity);
    if (known == impl_->images.end()) return std::nullopt;
    if (!known->second) return renamed(known->second.error());
    return known->second;
  };
  if (auto known = known_image()) return std::move(*known);
  if (!impl_->wait_for_turn(lock, impl_->read, identity)) return silent();
  if (auto known = known_image()) return std::move(*known);
  impl_->read.insert(identity);
  lock.unlock();
  auto image = Image::map(*file, path, shown_name, impl_->namespaces);
  lock.lock();
  impl_->read.erase(identity);
  impl_->changed.notify_all();
  return impl_->images.emplace(identity, std::move(image)).first->second;
}

}  // namespace rankstacks::elf
