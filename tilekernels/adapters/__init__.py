"""What makes other libraries call these kernels. Each module needs the library that it is named after."""
