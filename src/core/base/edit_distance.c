#include "base/edit_distance.h"

#include <string.h>

int nm_edit_distance(const char *a, const char *b)
{
    int rows[3][NM_EDIT_DISTANCE_BYTES + 1]; /* the distances of the beginnings of a, row i % 3 */
    int m = (int)strnlen(a, NM_EDIT_DISTANCE_BYTES), n = (int)strnlen(b, NM_EDIT_DISTANCE_BYTES);
    for (int j = 0; j <= n; j++)
        rows[0][j] = j;
    for (int i = 1; i <= m; i++) {
        int *row = rows[i % 3];
        const int *before = rows[(i + 2) % 3], *earlier = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int change = before[j - 1] + (a[i - 1] != b[j - 1]);
            int shift = (before[j] < row[j - 1] ? before[j] : row[j - 1]) + 1;
            row[j] = change < shift ? change : shift;
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && earlier[j - 2] + 1 < row[j])
                row[j] = earlier[j - 2] + 1;
        }
    }
    return rows[m % 3][n];
}

bool nm_edit_distance_is_near(int distance, const char *name)
{
    return 3 * distance <= (int)strlen(name);
}
