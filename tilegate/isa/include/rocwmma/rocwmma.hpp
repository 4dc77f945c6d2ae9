// Generated kernels include it and use nothing of it: they call the matrix instructions themselves.
#pragma once
