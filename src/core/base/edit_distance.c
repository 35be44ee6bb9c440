#include "base/edit_distance.h"

#include <string.h>

int nm_edit_distance(const char *a, const char *b)
{
    int row[NM_EDIT_DISTANCE_BYTES + 1];
    int m = (int)strnlen(a, NM_EDIT_DISTANCE_BYTES), n = (int)strnlen(b, NM_EDIT_DISTANCE_BYTES);
    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 1; i <= m; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            int shift = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = change < shift ? change : shift;
        }
    }
    return row[n];
}

bool nm_edit_distance_is_near(int distance, const char *name)
{
    return 2 * distance <= (int)strlen(name) + 1;
}
