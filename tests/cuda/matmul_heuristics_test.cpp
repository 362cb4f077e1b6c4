// Algorithms of products: searched, written, read again.
#include <catch2/catch.hpp>

#include "core/base/error.h"
#include "kernels/cuda/cublaslt_api.h"
#include "run_op.h"
#include "tests/cuda/matmul_settings.h"
#include "tests/fakecuda/fake_cuda.h"
#include "tests/matmul/product.h"

using namespace trainer;
using namespace trainer::test;

namespace {

const ProductCase kProduct{16, 16, 1024};                                            // f32: an order of sums shows
const ProductCase kOther{16, 24, 1024, DType::bf16, DType::f32, true, false, true};  // as a weight gradient

std::vector<std::byte> product(const ProductCase& p) {
  const ProductData data(p);
  run_op(data.op);
  return data.c.bytes();
}
void prepare(const ProductCase& p) {
  const ProductData data(p);
  OneStream stream(cuda::scratch_bytes(data.op));
  cuda::prepare(stream, data.op);
}
// The text of both products.
std::string search() {
  cuda::set_matmul_policy({.search = true});
  prepare(kProduct);
  prepare(kOther);
  return cuda::all_algorithms();
}
void set(const std::string& text) { cuda::set_algorithms(text, "FILE"); }
std::string with_line(const std::string& text, size_t number, const std::string& line) {
  std::string result;
  size_t at = 0;
  for (size_t i = 1; at < text.size(); ++i) {
    const size_t end = text.find('\n', at);
    result += (i == number ? line : text.substr(at, end - at)) + "\n";
    at = end + 1;
  }
  return result;
}
std::string line_of(const std::string& text, size_t number) {
  size_t at = 0;
  for (size_t i = 1; i < number; ++i) at = text.find('\n', at) + 1;
  return text.substr(at, text.find('\n', at) - at);
}

}  // namespace

TEST_CASE("algorithms: the first suggestion without a file, the same in every run") {
  const MatmulSettings settings;
  const auto first = product(kProduct);
  MatmulSettings::reset();
  REQUIRE(product(kProduct) == first);
  prepare(kProduct);  // which does not search unless it is told to
  REQUIRE(product(kProduct) == first);
}

TEST_CASE("algorithms: the fastest is found, written, and taken by later runs") {
  const MatmulSettings settings;
  const auto first = product(kProduct), first_other = product(kOther);
  fake::cublaslt_settings().slow = 0;  // the first that is suggested: another is faster
  const std::string text = search();
  fake::cublaslt_settings().slow = -1;
  const auto found = product(kProduct), found_other = product(kOther);
  REQUIRE(found != first);
  REQUIRE(found_other != first_other);

  MatmulSettings::reset();
  REQUIRE(product(kProduct) == first);
  set(text);
  REQUIRE(product(kProduct) == found);
  REQUIRE(product(kOther) == found_other);
}

TEST_CASE("algorithms: what a file holds is not searched again; what it holds of other GPUs is kept") {
  const MatmulSettings settings;
  const std::string both = search();
  REQUIRE(std::count(both.begin(), both.end(), '\n') == 4);
  std::string other_gpu = line_of(both, 3);
  other_gpu.replace(0, other_gpu.find(" | "), "Another GPU");
  MatmulSettings::reset();
  set(both + other_gpu + "\n");
  cuda::set_matmul_policy({.search = true});
  const uint64_t gemms = fake::counters.gemms;
  prepare(kProduct);
  prepare(kOther);
  REQUIRE(fake::counters.gemms == gemms);
  REQUIRE(cuda::found_algorithms().empty());
  const std::string all = cuda::all_algorithms();
  REQUIRE(all.find(line_of(both, 3)) != std::string::npos);
  REQUIRE(all.find(line_of(both, 4)) != std::string::npos);
  REQUIRE(all.find(other_gpu) != std::string::npos);
  REQUIRE(all.size() == both.size() + other_gpu.size() + 1);
}

TEST_CASE("algorithms: those of another GPU or another cuBLASLt alone are refused") {
  const MatmulSettings settings;
  const std::string good = search();
  std::string version = good, gpu = good;
  const std::string number = std::to_string(cuda::cublaslt().cublasLtGetVersion());
  for (size_t at; (at = version.find(" | " + number + " | ")) != std::string::npos;)
    version.replace(at, number.size() + 6, " | 120000 | ");
  REQUIRE_THROWS_WITH(set(version), Catch::Contains("FILE: its algorithms are of ") &&
                                        Catch::Contains(" with cuBLASLt 120000, and this is ") &&
                                        Catch::Contains("with cuBLASLt " + number + ": name another file"));
  const std::string name = line_of(good, 3).substr(0, line_of(good, 3).find(" | "));
  for (size_t at; (at = gpu.find(name)) != std::string::npos;) gpu.replace(at, name.size(), "A100");
  REQUIRE_THROWS_WITH(set(gpu), Catch::Contains("FILE: its algorithms are of A100 with cuBLASLt " + number));
}

TEST_CASE("algorithms: what another rank found replaces this rank's, and is not found here") {
  const MatmulSettings settings;
  const auto first = product(kProduct);
  fake::cublaslt_settings().slow = 0;
  search();
  const std::string others = cuda::found_algorithms();
  const auto found = product(kProduct);
  REQUIRE(found != first);
  MatmulSettings::reset();
  fake::cublaslt_settings().slow = 2;
  search();
  cuda::add_algorithms(others);
  REQUIRE(product(kProduct) == found);
  REQUIRE(cuda::found_algorithms().empty());
  REQUIRE(cuda::all_algorithms() == others);
}

TEST_CASE("algorithms: what was prepared is told once, with what cuBLASLt does not compute") {
  const MatmulSettings settings;
  cuda::take_prepared_products();
  search();
  prepare({17, 24, 32, DType::f32, DType::bf16});
  prepare({17, 24, 32, DType::f32, DType::bf16});
  prepare(kProduct);
  const auto told = cuda::take_prepared_products();
  REQUIRE(told.searched == 2);
  REQUIRE(told.plain.size() == 1);
  REQUIRE_THAT(told.plain[0], Catch::Contains("f32 to bf16 m 17 n 24 k 32"));
  REQUIRE(cuda::take_prepared_products().searched == 0);
  fake::cublaslt_settings().suggested = 0;
  prepare({18, 24, 32});
  REQUIRE(cuda::take_prepared_products().plain.size() == 1);
}

TEST_CASE("algorithms: a bad file is refused with its line") {
  const MatmulSettings settings;
  const std::string good = search(), third = line_of(good, 3);
  const auto refused = [&](const std::string& text, const std::string& message) {
    REQUIRE_THROWS_WITH(set(text), Catch::Contains("FILE" + message));
  };
  refused(with_line(good, 1, "# something else"), ":1: not a file of matmul algorithms");
  refused(with_line(good, 3, "a | b"),
          ":3: wanted 'GPU | cuBLASLt | problem | workspace | algorithm', found 2 columns");
  refused(with_line(good, 4, third), ":4: the same problem as in FILE:3");
  refused(with_line(good, 3, third.substr(0, third.size() - 1)), ":3: wanted an algorithm of 128 hexadecimal digits");
  refused(with_line(good, 3, third.substr(0, third.size() - 1) + "g"), ":3: wanted an algorithm of 128");
  const auto field = [&](const std::string& value) {
    const size_t last = third.rfind(" | "), begin = third.rfind(" | ", last - 1) + 3;
    return with_line(good, 3, third.substr(0, begin) + value + third.substr(last));
  };
  refused(field("99999999999"), ":3: wanted a workspace of at most 33554432 bytes, found '99999999999'");
  refused(field("-1"), ":3: wanted a workspace");
  set(good);
}

TEST_CASE("algorithms: one that does not fit its problem is refused with its line") {
  const MatmulSettings settings;
  const std::string good = search(), third = line_of(good, 3), fourth = line_of(good, 4);
  set(with_line(good, 3, third.substr(0, third.rfind(" | ")) + fourth.substr(fourth.rfind(" | "))));
  const bool first_is_bf16 = third.find("bf16 to f32") != std::string::npos;
  const ProductData data(first_is_bf16 ? kOther : kProduct);
  REQUIRE_THROWS_WITH(run_op(data.op), Catch::Contains("FILE:3: cuBLASLt does not take this algorithm"));
}
