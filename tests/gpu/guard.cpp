// Device guards that do nothing for CUDA and MPS, so that a CPU build of torch can carry tensors that
// say they are there: python's indexing asks for a guard. No kernel ever runs through one.
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

template <c10::DeviceType TYPE>
struct Guard final : c10::impl::NoOpDeviceGuardImpl<TYPE> {
  c10::Device getDevice() const override { return {TYPE, 0}; }
  c10::Device exchangeDevice(c10::Device) const override { return {TYPE, 0}; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
};

Guard<c10::DeviceType::CUDA> cuda;
Guard<c10::DeviceType::MPS> mps;
c10::impl::DeviceGuardImplRegistrar first(c10::DeviceType::CUDA, &cuda);
c10::impl::DeviceGuardImplRegistrar second(c10::DeviceType::MPS, &mps);

}  // namespace
