#include "io/commit.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>

#include "io/restore.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kStep = "step-", kTemporary = ".tmp-", kTrash = ".trash-";

std::optional<int64_t> step_of_name(std::string_view name) {
  if (!name.starts_with(kStep)) return {};
  name.remove_prefix(kStep.size());
  int64_t step = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc{} || end != name.data() + name.size() || step < 0) return {};
  return step;
}

bool is_leftover(std::string_view name) {
  return name.starts_with(kTrash) || (name.starts_with(kStep) && name.find(kTemporary) != std::string_view::npos);
}

void remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) fail_errno(Exit::disk, path, "remove", error.value());
}

void give_name(const std::string& temporary, const std::string& final_path) {
  if (renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, final_path.c_str(), RENAME_NOREPLACE) == 0) return;
  if (errno == EEXIST) {  // the exchanged one now bears the temporary name: a leftover
    if (renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, final_path.c_str(), RENAME_EXCHANGE) == 0) return;
  }
  if (errno != EINVAL && errno != ENOSYS) fail_errno(Exit::disk, temporary, "rename to " + final_path, errno);
  if (fs::exists(final_path)) {  // a file system without these flags: two moves
    const fs::path trash =
        fs::path(final_path).parent_path() / (std::string(kTrash) + fs::path(temporary).filename().string());
    rename_path(final_path, trash.string());
  }
  rename_path(temporary, final_path);
}

void write_latest(const std::string& directory, int64_t step, FailSite site) {
  const std::string path = directory + "/LATEST", temporary = path + ".tmp";
  {
    const File file = create_file(temporary);
    write_text(file, fmt::format("step-{}\n", step));
    pass_failpoint("latest_write", site, temporary);
    sync(file);
  }
  rename_path(temporary, path);
  pass_failpoint("latest_renamed", site, path);
  sync_directory(directory);
}

void write_manifest(const std::string& directory, const Manifest& manifest, FailSite site) {
  const std::string path = directory + "/" + kManifestFile, temporary = path + ".tmp";
  const std::string text = to_text(manifest);
  {
    const File file = create_file(temporary);
    write_text(file, std::string_view(text).substr(0, text.size() / 2));
    pass_failpoint("manifest_write", site, temporary);
    write_text(file, std::string_view(text).substr(text.size() / 2));
    pass_failpoint("manifest_written", site, temporary);
    sync(file);
  }
  pass_failpoint("manifest_synced", site, temporary);
  rename_path(temporary, path);
  pass_failpoint("manifest_renamed", site, path);
}

bool is_good(const std::string& step_directory) {
  try {
    open_checkpoint(step_directory);
    return true;
  } catch (const Error&) { return false; }
}

void discard(const std::string& directory, const std::string& path, FailSite site) {
  const std::string trash = directory + "/" + std::string(kTrash) + fs::path(path).filename().string();
  rename_path(path, trash);
  pass_failpoint("gc_delete", site, trash);
  remove_tree(trash);
}

}  // namespace

std::vector<StepPath> list_steps(const std::string& directory) {
  std::vector<StepPath> steps;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error))
    if (const auto step = step_of_name(at->path().filename().string())) steps.push_back({*step, at->path().string()});
  if (error && error != std::errc::no_such_file_or_directory)
    fail_errno(Exit::checkpoint, directory, "list", error.value());
  std::sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  return steps;
}

int64_t newest_generation(const std::string& directory) {
  int64_t newest = 0;
  for (const StepPath& s : list_steps(directory)) {
    try {
      newest = std::max(newest, open_checkpoint(s.path).manifest.generation);
    } catch (const Error&) {  // says nothing that can be believed
    }
  }
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    const size_t mark = name.find(kTemporary);
    int64_t generation = 0;
    if (mark == std::string::npos) continue;
    const char* digits = name.data() + mark + kTemporary.size();
    if (std::from_chars(digits, name.data() + name.size(), generation).ec == std::errc{})
      newest = std::max(newest, generation);
  }
  return newest;
}

std::string step_path(const std::string& directory, int64_t step) {
  return fmt::format("{}/{}{}", directory, kStep, step);
}

std::string make_step_directory(const std::string& directory, int64_t step, int64_t generation) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) fail_errno(Exit::disk, directory, "create directory", error.value());
  const std::string path = fmt::format("{}{}{}", step_path(directory, step), kTemporary, generation);
  remove_tree(path);  // of a save of the same generation that crashed
  if (mkdir(path.c_str(), 0755) != 0) fail_errno(Exit::disk, path, "create directory", errno);
  return path;
}

void commit_step(const std::string& directory, const std::string& temporary, const Manifest& manifest, FailSite site) {
  write_manifest(temporary, manifest, site);
  sync_directory(temporary);
  pass_failpoint("directory_synced", site, temporary);
  give_name(temporary, step_path(directory, manifest.run.step));
  pass_failpoint("step_renamed", site, directory);
  sync_directory(directory);
  pass_failpoint("parent_synced", site, directory);
  write_latest(directory, manifest.run.step, site);
}

void collect_garbage(const std::string& directory, const Retention& retention, FailSite site) {
  pass_failpoint("gc_begin", site, directory);
  std::vector<std::string> leftovers;
  for (const auto& entry : fs::directory_iterator(directory))
    if (is_leftover(entry.path().filename().string())) leftovers.push_back(entry.path().string());
  for (const auto& path : leftovers) remove_tree(path);

  const std::vector<StepPath> steps = list_steps(directory);
  if (steps.empty() || !is_good(steps[0].path)) return;
  int64_t kept = 0;
  for (const StepPath& s : steps) {
    if (kept >= std::max<int64_t>(retention.keep, 1)) {
      const bool stays = retention.keep_every && s.step % *retention.keep_every == 0;
      if (!stays) discard(directory, s.path, site);
    } else if (is_good(s.path)) {
      ++kept;
    }
  }
}

}  // namespace trainer
